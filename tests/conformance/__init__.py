"""Cases that other projects wrote, run against this project or re-expressed. Nothing is fetched at run time."""
