"""What all tests share: machines that run them are slow at times, which is no failure of an example."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
