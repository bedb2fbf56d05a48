"""Read data sets at an address (``hf://``, ``s3://``, ``https://``) with fsspec, through a cache of bounded size."""
