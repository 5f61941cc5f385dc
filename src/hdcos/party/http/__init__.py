"""The HTTPS interface of a party: the only part of the package that needs the extra `hdcos[server]`."""
