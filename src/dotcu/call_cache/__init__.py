"""The call cache: a body that only allocates and launches is traced once; later calls run its recording."""
