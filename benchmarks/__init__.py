"""Speed against peers: one process, interleaved, median of five, as ratios at equal quality."""
