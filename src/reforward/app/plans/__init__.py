"""What the planner is asked, and how its answers are checked and calibrated."""
