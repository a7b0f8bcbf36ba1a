"""What a person or another program reads: one function for each form."""
