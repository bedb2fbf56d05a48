"""Projects of Tencent's Kaiwu framework, run unchanged over our environments."""
