"""The playground: policies tried on a simulated cluster, from the page; the live cluster is neither asked nor touched.

wish -> scenario -> worker process (compare) -> files of the run -> page
"""
