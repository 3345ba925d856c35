"""Source, PTX and SASS side by side, as one HTML file that needs nothing else."""
