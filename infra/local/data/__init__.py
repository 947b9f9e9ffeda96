"""Small copies of real data for the demo and the tests; each folder names its source and licence."""
