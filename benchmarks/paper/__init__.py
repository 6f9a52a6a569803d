"""Tables 1 to 4 and Figure 4 of the PyTorch 2 paper (Ansel et al., ASPLOS 2024) for this machine: `python -m benchmarks.paper`."""
