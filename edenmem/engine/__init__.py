"""The engine: all operations of edenmem, without command line, terminal or database code."""
