"""Other projects' interfaces over ours; the other project is imported where it is used."""
