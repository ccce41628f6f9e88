"""The faults of each room that needs no run, by name."""

from chaos.rooms import cell_files, mlserver, monitor, publishing, search, serving

ROOMS = {
    name: fault
    for room in (publishing, search, serving, mlserver, cell_files, monitor)
    for name, fault in room.ROOMS.items()
}
