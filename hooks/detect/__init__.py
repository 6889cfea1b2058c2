"""The parts of guards: detectors, rules, folding, readings, windows, and the guards built from them."""
