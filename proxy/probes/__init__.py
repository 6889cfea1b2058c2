"""Making a probe: labelled exchanges, training, calibration, a report. It needs the extra `engine`."""
