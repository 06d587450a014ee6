"""The BIF format of Bayesian networks: lexer, blocks, parser."""
