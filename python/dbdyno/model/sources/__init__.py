"""Where figures come from, and which families of waits and areas of code an engine knows."""
