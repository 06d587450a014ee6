"""Code that estimators share: validation, padding, scaling, prediction."""
