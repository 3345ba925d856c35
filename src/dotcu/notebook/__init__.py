"""Notebooks: `%load_ext dotcu` and `%%cu`, errors at the cell's line, reports as tables and pictures.

    extension -> options, cell -> names bound in the notebook
    traceback                      an error as IPython shows it
    page -> markup, pictures       a report as HTML

Nothing here imports IPython: it comes to dotcu, not dotcu to it.
"""
