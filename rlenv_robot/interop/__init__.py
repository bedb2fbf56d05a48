"""Other projects' interfaces over ours, one file each; the other project is imported where it is used."""
