"""Makes a receipt of each answer, and has it written.

Nothing imports this package but the seam (`proxy.service.receipt_keeping`), which does so if the settings ask
for receipts.
"""
