"""Speed and memory, measured. Each script writes the table it prints."""
