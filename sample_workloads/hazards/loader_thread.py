"""A thread that pins memory for the next batches, as a data loader's pin-memory thread does."""

import threading
import time

from cudagraph_gate.device import current_device
from cudagraph_gate.errors import DeviceError

PAUSE_S = 0.001


class Loader(threading.Thread):
    """Pins a batch whenever it is asked to, or all the time when it runs ``ahead``."""

    def __init__(self, nbytes, *, ahead=False):
        super().__init__(daemon=True)
        self._device, self._nbytes, self._ahead = current_device(), nbytes, ahead
        self._asked, self._ready = threading.Semaphore(0), threading.Semaphore(0)
        self.pinned, self.failure = 0, None
        self.start()

    def run(self):
        """Serve until an error ends the thread."""
        self._device.attach_thread()
        while self.failure is None:
            if self._ahead:
                time.sleep(PAUSE_S)
            else:
                self._asked.acquire()
            try:
                self._device.pinned(self._nbytes).free()
                self.pinned += 1
            except DeviceError as error:
                self.failure = error
            self._ready.release()

    def next_batch(self):
        """Ask for a batch and wait for it."""
        if self.failure is None:
            self._asked.release()
            self._ready.acquire()

    def require_alive(self):
        """Raise what ended the thread."""
        if self.failure is not None:
            raise RuntimeError(f"the loader thread died: {self.failure}") from self.failure
