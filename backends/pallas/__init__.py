"""Programs as one Pallas call: interpreted on a CPU, or compiled for TPUs, attached or not."""
