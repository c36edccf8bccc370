"""The desktop runtime: sessions, feeds, memory and the executor of Programs."""
