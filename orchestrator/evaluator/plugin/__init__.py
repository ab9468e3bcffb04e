"""What runs inside the sandbox, with the task's own interpreter and pytest; stands alone."""
