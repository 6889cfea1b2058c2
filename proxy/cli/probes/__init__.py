"""`weir probe`: probes trained and measured on labelled exchanges."""
