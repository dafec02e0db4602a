"""Tables of a paper: rows by seeds as DVC experiments."""
