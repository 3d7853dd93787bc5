"""What is measured: each module measures one subject and adds its figures to the report."""
