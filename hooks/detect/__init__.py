"""What guards are made of: detectors, rules, folding, readings, windows, and the guards built from them."""
