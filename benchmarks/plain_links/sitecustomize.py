"""Python imports this at its start where the folder is on its path: every link of the process is pumped by Python."""

from hdcos.link import tls

tls.open_pump = lambda *_: None
