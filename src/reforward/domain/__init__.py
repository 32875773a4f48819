"""Values, seams and errors. Standard library only."""
