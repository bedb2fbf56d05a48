"""Markers seen by cameras, Filament's images, a virtual camera on the network, and a window on an environment."""
