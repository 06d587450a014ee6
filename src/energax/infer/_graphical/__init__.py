"""Message passing and its relatives on networks and factor graphs."""
