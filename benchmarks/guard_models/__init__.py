"""What guards that are models cost, beside the model that they guard."""
