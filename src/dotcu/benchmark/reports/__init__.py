"""Reports of benchmarks: their values, table, plot, file, and comparison with an earlier run."""
