"""Speed against peers, interleaved, as ratios at equal quality; first uses in fresh processes."""
