"""What is measured: a recipe's fields, the plan that follows from them, its cells."""
