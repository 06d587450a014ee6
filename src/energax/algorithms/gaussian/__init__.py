"""Linear systems with Gaussian noise, and Gaussians with missing entries."""
