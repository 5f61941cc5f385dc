"""What all tests share: machines that run them are slow at times, which is no failure of an example."""

import signal

from hypothesis import settings

# In the background of a shell interrupts are ignored, and every process that tests start would ignore them too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
