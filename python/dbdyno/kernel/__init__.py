"""What the kernel shows of processes and control groups, and takes: for engines and limits alike."""
