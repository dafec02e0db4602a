"""What a project holds about users, and how it is removed."""
