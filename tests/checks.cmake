# Rules of the house that a script can hold, and the header and the installed tree as a user compiles them.
