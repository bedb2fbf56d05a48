"""Run projects of Tencent's Kaiwu framework unchanged on this project's environments."""
