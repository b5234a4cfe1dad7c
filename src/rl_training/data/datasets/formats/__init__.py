"""File formats of datasets: npz, HDF5, Minari."""
