"""Read data sets at an address (``hf://``, ``s3://``, ``https://``) by fsspec, through a cache of bounded size."""
