# SPDX-License-Identifier: Apache-2.0
"""``thalweg report``: a plan of measurements, the document that they give, what is found in it, and the page that shows it."""
