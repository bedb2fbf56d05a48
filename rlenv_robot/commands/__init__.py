"""The verbs of the command line, one file each: ``add`` declares it, ``run`` carries it out."""
