"""What runs inside a worker: bind a candidate to weights and run it. The same code measured and serving."""
