"""The faults of each room that needs no run, by name."""

from chaos.rooms import cell_files, monitor, publishing, search, serving

ROOMS = {**publishing.ROOMS, **search.ROOMS, **serving.ROOMS, **cell_files.ROOMS, **monitor.ROOMS}
