"""Methods that replace a posterior by a simpler distribution."""
