"""The trial and the recording, each in a worker process of its own."""
